"""Speed, after correctness: timing that a candidate cannot talk its way through, and how near it is to the device's."""

from assay.bench.model import Baseline, BenchFinding, BenchReport, Concern, Interval, Times
from assay.bench.options import BenchOptions
from assay.bench.run import bench_task

__all__ = ["Baseline", "BenchFinding", "BenchOptions", "BenchReport", "Concern", "Interval", "Times", "bench_task"]
