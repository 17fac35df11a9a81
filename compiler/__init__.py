"""The driver, the pipeline, the machines, the cost model and the CUDA C printer."""
