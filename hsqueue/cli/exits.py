"""How commands end."""

COMPLETE = 0
FAULT = 1
USAGE = 2
INCOMPLETE = 3


class Interrupted(BaseException):
    """Somebody asked the command to end. No KeyboardInterrupt, which the library would answer with a bare word."""
