"""What every module uses: checks, running a model, files, progress, drawing."""
