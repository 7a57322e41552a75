"""One module a command of ``lossless``: reads its arguments, calls what computes, prints. ``register`` adds it."""
