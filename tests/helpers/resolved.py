"""What every recipe resolves to in tests of tables that train nothing."""

RECIPE = {"data": {"class_path": "PATTERN", "init_args": {"batch_size": 16}}, "trainer": {"limit_train_batches": None}}
