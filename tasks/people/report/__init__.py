"""What annotation comes to: how far raters of concepts agree, what settled the labels, and who has voted."""
