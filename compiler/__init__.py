"""What drives the passes and prints their result: driver, pipeline, machines, cost model, lowering, CUDA C printer."""
