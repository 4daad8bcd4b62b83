"""Many verdicts over judges that stay warm."""

from assay.pool.model import Done, Job
from assay.pool.pool import Pool

__all__ = ["Done", "Job", "Pool"]
