{
  networking.hostName = "spark-worker";
  services.glm53.rank = 1;
}
