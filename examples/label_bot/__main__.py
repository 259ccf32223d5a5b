import sys

from tidegate import TidegateError

try:
    from label_bot.bot import main
except (
    TidegateError
) as error:  # a setting that cannot be used: the jobs need some of them when they are declared
    sys.exit(f"label_bot: {error}")

main()
