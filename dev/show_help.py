"""--help of the programs here that take no options, before they import or start anything."""
import sys


def show_help(text):
    """Prints the text and ends, where the command line asks for help."""
    if any(a in ("-h", "--help") for a in sys.argv[1:]):
        print(text.strip())
        sys.exit()
