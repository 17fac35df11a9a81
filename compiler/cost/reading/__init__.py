"""The plan of a kernel, read off the IR: decorated with sizes, or with its streams expanded."""
