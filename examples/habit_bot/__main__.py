from habit_bot.bot import main

main()
