"""See `work_without_pickle`."""

from tests.engines.mpyc_functions import work_without_pickle

if __name__ == "__main__":
    work_without_pickle()
