"""What executes: interpreters, the emulator, PyCUDA. Knows nothing of passes."""
