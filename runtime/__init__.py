"""What executes programs: interpreters, the emulator, PyCUDA. It knows nothing of passes."""
