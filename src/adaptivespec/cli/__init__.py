"""The command line: one file per command, all drawing in `display`.

Only this package reads the environment, and nothing else in AdaptiveSpec imports it. Modules import
the engine inside functions, so that `adaptivespec --help` starts without torch.
"""
