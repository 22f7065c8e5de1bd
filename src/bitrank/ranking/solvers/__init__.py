"""The quadratic programme of the paper: its objective and its solvers."""
