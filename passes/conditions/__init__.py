"""Where conditions on data hold: what is sought, and the arrays that tell it, made once for all kernels."""
