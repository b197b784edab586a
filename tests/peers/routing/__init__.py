"""Peers' own test suites, run through `arrow_dlpack`: the table, the shims, and the plugin that checks each run."""
