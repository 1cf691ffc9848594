"""Operations of the plug-ins' models."""
