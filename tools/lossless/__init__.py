"""Proves, token by token, that SGLang's speculative decoding is lossless."""

__version__ = "0.1.0"
