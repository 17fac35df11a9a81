// A bias that has none of the streamed axis, loaded in every step all the same: it counts every time.

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!b = tensor<?xf16, #diagram.array<[row]>>
!Ad = tensor<?x?xf32, #diagram.array<[row, x], level = device>>
!bd = tensor<?xf16, #diagram.array<[row], level = device>>
!Yd = memref<?x?xf32, #diagram.array<[row, x], level = device>>
!t = tensor<4x32xf32, #diagram.array<[row, x], level = register>>
!bt = tensor<4xf16, #diagram.array<[row], level = register>>

func.func @biased(%A: !A, %b: !b) -> !A attributes {sizes = #diagram.sizes<row = 8, x = 64>} {
  %Y = hierarchy.kernel @biased (%Ad = %A : !A as !Ad, %bd = %b : !b as !bd) saves (%Yd : !Yd) -> (!A)
      schedule #hierarchy.schedule<group = [row = 4], stream = [x = 32], warps = [row = 4]> {
    hierarchy.group [row = 4] {
      hierarchy.stream [x = 32] initialise {
        hierarchy.yield
      } step {
        %t = hierarchy.load %Ad : !Ad -> !t
        %bt = hierarchy.load %bd : !bd -> !bt
        %y = diagram.map (%u = %t : !t, %v = %bt : !bt) -> !t {
          %w = arith.extf %v : f16 to f32
          %z = arith.addf %u, %w : f32
          diagram.yield %z : f32
        }
        hierarchy.save %y into %Yd : !t, !Yd
        hierarchy.yield
      } finish {
        hierarchy.yield
      }
    }
    hierarchy.yield
  }
  func.return %Y : !A
}
