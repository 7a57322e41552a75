"""The single checks behind :func:`lossless.profiles.check.check_profile`, one subject a file."""
