"""Reports of the research methods: one folder and one stage entry point each."""
