{
  networking.hostName = "spark-head";
  services.glm53.rank = 0;
}
