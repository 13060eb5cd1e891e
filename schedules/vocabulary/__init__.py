"""The words that everything else is written in: frozen dataclasses with stable keys."""
