"""What gradients learn: networks, their inputs, batches, and the loss."""
