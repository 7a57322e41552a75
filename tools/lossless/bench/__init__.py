"""Speed and acceptance of a baseline and its variants, measured on the same requests.

plan      what is asked (pure)
measure   asks it of one server and notes when the answers arrive
sample    one request's measurement
figures   medians, spreads and ratios (pure)
tables    the figures as tables of text (pure)
file      bench.json
"""
