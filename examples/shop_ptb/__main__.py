from shop_ptb.bot import main

main()
