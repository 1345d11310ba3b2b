"""torchvision's own tests of transforms, on the package over Flambeau and on Flambeau's transforms under its name.

    plugin.py        what such a run finds under the names `torch` and `torchvision`
    __main__.py      the runs, and the table that docs/images.md has of them

`make torchvision-tests` fetches the tests and runs everything. It is no part of the other suites, since it takes half
an hour.
"""
