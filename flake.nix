{
  description = "One GLM-5.3-Flash server on two NVIDIA DGX Sparks";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

    # Disks, for the installer.
    disko = {
      url = "github:nix-community/disko";
      inputs.nixpkgs.follows = "nixpkgs";
    };

    # Kernel and driver of the machine. As files: its own inputs are for things not used here.
    dgx-spark = {
      url = "github:graham33/nixos-dgx-spark";
      flake = false;
    };
  };

  outputs =
    inputs@{ self, nixpkgs, ... }:
    let
      inherit (nixpkgs) lib;

      # CUDA and GB10 are aarch64's; everything else is for both.
      systems = [
        "aarch64-linux"
        "x86_64-linux"
      ];
      forEach = lib.genAttrs systems;

      pkgsFor = forEach (
        system:
        import nixpkgs {
          inherit system;
          overlays = [ self.overlays.default ];
          config.allowUnfreePredicate = import ./nix/packages/unfree.nix { inherit lib; };
        }
      );

      concern = file: {
        imports = [ file ];
        nixpkgs.overlays = [ self.overlays.default ];
      };

      pair = import ./nix/hosts {
        inherit inputs;
        module = self.nixosModules.default;
      };

      image =
        host:
        (lib.nixosSystem {
          modules = [
            { nixpkgs.hostPlatform = "aarch64-linux"; }
            "${inputs.dgx-spark}/modules/dgx-spark.nix"
            (import ./nix/hosts/installer.nix host)
          ];
        }).config.system.build.isoImage;

      images = hosts: {
        image-head = image hosts.spark-head;
        image-worker = image hosts.spark-worker;
      };
    in
    {
      # What the template calls.
      lib = {
        # The owner's six values, and modules if any -> { spark-head, spark-worker }
        inherit pair;
        # These two -> USB images that install them.
        inherit images;
      };

      overlays.default = final: _: { glm53 = import ./nix/packages { pkgs = final; }; };

      nixosModules = {
        default = concern ./nix/modules;
        fabric = concern ./nix/modules/fabric.nix;
        monitoring = ./nix/modules/monitoring.nix;
        page = concern ./nix/modules/page.nix;
        rank = concern ./nix/modules/rank.nix;
        watchdog = concern ./nix/modules/watchdog.nix;
        weights = concern ./nix/modules/weights.nix;
      };

      nixosConfigurations = pair (import ./nix/hosts/owner.nix);

      packages = forEach (
        system:
        let
          inherit (pkgsFor.${system}) glm53;
        in
        {
          inherit (glm53) glm53ctl units;
          default = glm53.glm53ctl;
        }
        // lib.optionalAttrs (system == "aarch64-linux") {
          inherit (glm53) engine exllamav3-ext overlay;
        }
        // lib.optionalAttrs (system == "aarch64-linux") (images self.nixosConfigurations)
        // lib.optionalAttrs (system == "x86_64-linux") { inherit (glm53) engine-cpu; }
      );

      checks = forEach (
        system:
        import ./nix/checks {
          inherit self inputs;
          pkgs = pkgsFor.${system};
        }
      );

      apps = forEach (system: import ./nix/apps.nix { pkgs = pkgsFor.${system}; });

      devShells = forEach (
        system:
        let
          pkgs = pkgsFor.${system};
        in
        {
          # The tools are made by `make setup`, as on a machine without Nix.
          default = pkgs.mkShellNoCC {
            packages = [
              pkgs.python312
              pkgs.gnumake
              pkgs.nixfmt
              pkgs.shellcheck
            ];
          };
        }
      );

      formatter = forEach (system: pkgsFor.${system}.nixfmt);

      templates.default = {
        path = ./nix/templates/default;
        description = "Two DGX Sparks that serve GLM-5.3-Flash: fill in six values";
      };
    };
}
