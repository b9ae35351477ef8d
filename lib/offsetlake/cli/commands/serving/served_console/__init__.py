"""The process of the console of `offsetlake serve`.

Its entry point is `__main__`, because processes that it forks import every other main module (`multiprocessing.spawn`).
"""
