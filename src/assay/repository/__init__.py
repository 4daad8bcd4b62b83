"""A repository that holds kernels: which pairs it has, what each may do, and whether all of them may merge."""
