"""hsqueue: verified hidden states out of SGLang servers, for training EAGLE-3 drafters."""

__version__ = "0.1.0"
