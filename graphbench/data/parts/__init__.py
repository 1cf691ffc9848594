"""Long computations in parts: `shares` divides them between jobs, `kept` keeps what is finished."""
