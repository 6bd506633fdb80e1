"""The one error this room raises."""


class DataError(ValueError):
    """Something is wrong with the data or its settings; the message names it and says what to do."""
