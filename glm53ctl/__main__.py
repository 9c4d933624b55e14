"""`python -m glm53ctl`, the form in which the program starts its own ranks."""

from glm53ctl.cli import main

if __name__ == "__main__":
    main()
