"""Operations of layers."""
