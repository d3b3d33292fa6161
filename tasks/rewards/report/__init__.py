"""Reports of rewards and of training with them: one folder and one stage entry point each."""
