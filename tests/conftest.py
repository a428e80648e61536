"""What every test needs: kernels that are compiled before anything is timed or drawn."""

import sparklog.record.kernels  # noqa: F401
