from shop_aiogram.bot import main

main()
