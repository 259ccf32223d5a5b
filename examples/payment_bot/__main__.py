from payment_bot.running import main

main()
