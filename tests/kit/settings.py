"""Settings of stores for tests."""

from datetime import timedelta

from tarry.core.settings import StoreSettings

FOR_TESTS = StoreSettings(pool_size=4, scan_every=timedelta(milliseconds=20), connect_for=timedelta(seconds=30))
