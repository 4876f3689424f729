"""Random and mutated input into everything that reads what comes from outside: ``make fuzz``."""
