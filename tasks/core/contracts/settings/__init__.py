"""What a study or an experiment file may say."""
