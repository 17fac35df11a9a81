"""The subcommands of `treadle`, one file each."""
