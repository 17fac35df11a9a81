"""What runs PTX: memories, threads and their order, and the registry of what instructions mean."""
