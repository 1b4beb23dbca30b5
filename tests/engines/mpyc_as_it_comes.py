"""See `work_as_mpyc_comes`."""

from tests.engines.mpyc_functions import work_as_mpyc_comes

if __name__ == "__main__":
    work_as_mpyc_comes()
