"""Triton twins of the operations in `mosslive.kernels`: same name, same arguments, same result.

Imported only where a GPU (or Triton's interpreter, in tests) is there.
"""
