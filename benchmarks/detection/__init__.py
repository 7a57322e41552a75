"""Is the judge to be trusted? Planted faults, benign noise, and how sensitive the verdict is beside plainer rules.

    python -m benchmarks.detection --full --out docs
    python -m benchmarks.detection.figure

Everything is recorded by the suite's own recorder from real servers of the embedded engine (HTTP on loopback) and
judged by the suite's own analysis. The honest baseline is recorded once; its answers are copied into each run folder.
"""
